-- The names of the queues.
return finish('ok', call('SMEMBERS', ROOT .. 'queues'))
