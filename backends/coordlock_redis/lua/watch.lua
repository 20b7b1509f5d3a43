-- Have departures told to the own inbox. The own session or ""; for each contender: queue, id, token, the version of its
-- value or "" not to be told of others -> last, and for each: 0 if it has left, 2 if its value is
-- another one, else 1; and the microseconds after which its session expires
local session, answer = ARGV[FIRST], {}
if session ~= '' and not expiry_of(session) then return finish('lost', born) end
for at = FIRST + 1, #ARGV, 4 do
  local queue, id, token, version = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local status, left = 0, 0
  if is_there(queue, id, token) then
    local claims = ROOT .. 'claims:' .. queue
    local expiry = expiry_of(session_of(call('HGET', claims, id) or '- ') or '')
    if not expiry then
      leave(queue, id) -- its session's record is gone, as after an eviction
    else
      status, left = 1, expiry - now
      local value = call('HGET', claims, '=' .. id) or '1 '
      if version ~= '' and string.match(value, '^%d+') ~= version then status = 2 end
      watch(queue, id, INBOX .. (version ~= '' and '+' or ''))
    end
  end
  answer[#answer + 1] = status
  answer[#answer + 1] = left
end
return finish('ok', last, unpack(answer))
