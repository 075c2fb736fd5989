"""Millrace as storage back end."""

from millrace.lithops import StorageBackend

__all__ = ["StorageBackend"]
