"""What `run.py` is made of: readings -> application -> host -> score -> chart."""
