"""How routelake reaches a machine: the pinned JVM jars, images and sample configurations."""
