"""Millrace as compute back end."""

from lithops import constants
from millrace.lithops import ServerlessBackend

__all__ = ["ServerlessBackend"]

# Lithops lists its back ends in a constant, and asks it for the mode of a configuration that it has completed.
if "millrace" not in constants.SERVERLESS_BACKENDS:
    constants.SERVERLESS_BACKENDS += ("millrace",)
