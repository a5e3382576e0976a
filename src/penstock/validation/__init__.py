"""Records held against schemas before they are written: what a topic's `penstock.schema.*` settings ask for.

Called by handlers.validated_produce, only for topics that ask for it; broker makes the one SchemaValidation. Nothing
is read, imported or started before the first batch of such a topic.
"""
