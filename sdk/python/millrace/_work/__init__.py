"""What a worker is made of, besides `millrace._worker`. The host sends these files, too, so they need no package."""
