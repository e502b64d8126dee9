"""One file per method, named as its class; parts that methods share start with an underscore."""
