"""Servers that answer from stores: the Model Context Protocol (MCP) for agents."""
