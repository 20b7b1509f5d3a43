-- Behind all functions, and before the operation: end what does not count any more.
if not state[1] then -- a new root, or one without its data
  local started, seen = known_to_client()
  begin_anew(seen > 0 and now or started)
elseif state[1] ~= RUN then -- another server
  begin_anew(now)
else
  for _, session in ipairs(call('ZRANGEBYSCORE', ROOT .. 'sessions', '-inf', NOW)) do
    end_session(session)
  end
end
