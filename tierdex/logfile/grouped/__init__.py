"""The grouped form: messages by topic, queue and offset, in compressed pages."""
