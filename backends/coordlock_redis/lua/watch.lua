-- Have departures reported to the own inbox. The own session or ""; for each contender: queue, id, token, "+" to have
-- its values reported, too -> last, and for each: the version of its value, or 0 if it has left; and the
-- microseconds after which its session expires
local session, answer = ARGV[FIRST], {}
if session ~= '' and not expiry_of(session) then return finish('lost', born) end
for at = FIRST + 1, #ARGV, 4 do
  local queue, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local version, left = 0, 0
  if is_there(queue, id, token) then
    local claims = ROOT .. 'claims:' .. queue
    local expiry = expiry_of(session_of(call('HGET', claims, id) or '- ') or '')
    if not expiry then
      leave(queue, id) -- its session's record is gone, as after an eviction
    else
      version = tonumber(string.match(call('HGET', claims, '=' .. id) or '1', '^%d+'))
      left = expiry - now
      watch(queue, id, INBOX .. ARGV[at + 3])
    end
  end
  answer[#answer + 1], answer[#answer + 2] = version, left
end
return finish('ok', last, unpack(answer))
