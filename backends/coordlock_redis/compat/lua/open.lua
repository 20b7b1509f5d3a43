if CLUSTER == '1' then
  return finish('refused', 'the option compat needs a Redis that is no cluster: there, scripts '
    .. 'reach the keys of one slot alone')
end
-- The keys that are shared with redis-py expire, so that the policies volatile-* concern them.
EVICTING = '^%a+%-'
