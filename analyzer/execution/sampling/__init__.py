"""Execution of whole launches: the CTAs to execute, the proof that they represent all, and the profile."""
