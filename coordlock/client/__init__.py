"""Connecting, and the clients that locks and recipes come from."""

from coordlock.client.client import AsyncClient, Client, Connecting, connect, connect_async

__all__ = ["AsyncClient", "Client", "Connecting", "connect", "connect_async"]
