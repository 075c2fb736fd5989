"""Millrace as compute back end."""

from lithops import constants
from millrace.lithops import ServerlessBackend

__all__ = ["ServerlessBackend"]

# Lithops lists its back ends in a constant, and derives the mode of a complete configuration from it.
if "millrace" not in constants.SERVERLESS_BACKENDS:
    constants.SERVERLESS_BACKENDS += ("millrace",)
