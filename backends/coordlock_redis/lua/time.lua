-- The server's clock, in microseconds since 1970.
return finish('ok', now)
