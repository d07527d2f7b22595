"""Processes that take up sessions on any number of hosts, and what carries word of them from one to another."""
