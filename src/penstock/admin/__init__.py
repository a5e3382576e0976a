"""What can be known of a cluster, and done to it, through Kafka's own protocol: any Kafka cluster, not only penstock's.

Called by the commands of `penstock` and by the gateway's console. Everything here blocks; the gateway calls it from
threads.
"""
