"""Who is in the cluster, who leads what: the metadata store, the broker's picture of it, and those who change it."""
