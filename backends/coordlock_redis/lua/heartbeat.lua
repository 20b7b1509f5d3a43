-- Extend a session. session, its ttl in microseconds, a number -> born, the longest ttl
local session, ttl = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
-- Redis refuses the first write of a script that needs memory when it has none left. So this one
-- begins with a write that needs none: a session shall not end because others filled the memory.
call('DEL', ROOT .. 'nothing')
end_what_a_promotion_has_lost()
end_what_may_be_evicted()
if not expiry_of(session) then return finish('lost', born) end
extend(session, ttl)
publish('inbox:' .. INBOX, 'beat ' .. ARGV[FIRST + 2])
return finish('ok', born, max_ttl)
