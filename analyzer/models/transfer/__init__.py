"""Times measured on one GPU, carried over to another."""
