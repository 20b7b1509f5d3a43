-- Behind all functions, and before the operation: end what does not count any more.
if not state[1] then -- a new root, or one without its data
  local UNTIL, KNOWN = delays()
  begin_anew(math.max(UNTIL, KNOWN > 0 and now + KNOWN or 0))
elseif state[1] ~= RUN then -- another server
  begin_anew_later()
else
  for _, session in ipairs(call('ZRANGEBYSCORE', ROOT .. 'sessions', '-inf', NOW)) do
    end_session(session)
  end
end
