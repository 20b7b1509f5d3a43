-- Behind all functions, and before the operation: end what does not count any more.
if not state[1] then -- a new root, or one without its data
  local started, seen = known_to_client()
  begin_anew(seen > 0 and now or started)
elseif state[1] ~= RUN then -- another server
  begin_anew(now)
else
  -- In parts. Whoever waits for a contender that is left over looks for that one itself.
  local most = MOST
  for _, session in ipairs(call('ZRANGEBYSCORE', ROOT .. 'sessions', '-inf', now)) do
    if most > 0 then most = most - end_session(session, most) end
  end
end
