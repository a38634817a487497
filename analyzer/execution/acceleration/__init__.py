"""Loops taken in closed form: one symbolic iteration stands for many; branches that nothing decides."""
