-- End a session, or a part of it; nobody takes it for alive from now on. session
-- -> 1 if contenders are left over, else 0
local session = ARGV[FIRST]
call('ZADD', ROOT .. 'sessions', 0, session)
return finish('ok', end_session(session, MOST) == MOST and 1 or 0)
