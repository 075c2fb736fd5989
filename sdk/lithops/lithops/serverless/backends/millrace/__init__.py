"""Millrace as compute back end."""

from millrace.lithops import ServerlessBackend

__all__ = ["ServerlessBackend"]
