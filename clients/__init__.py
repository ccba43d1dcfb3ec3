"""What talks to routelake, and what starts it: the command line."""
