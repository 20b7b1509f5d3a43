"""Parts for the tests of backends and of applications that use coordlock."""
