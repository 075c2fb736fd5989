"""How Lithops configures Millrace."""

from millrace.lithops import load_config

__all__ = ["load_config"]
