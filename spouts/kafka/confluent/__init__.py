"""A real cluster, through confluent-kafka (librdkafka): the only package of the spouts that uses it.

``log`` has the client that answers questions and reads spans, and ``consumer`` the member of a consumer group.
"""
