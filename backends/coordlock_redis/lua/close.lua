-- End a session. session
end_session(ARGV[FIRST])
return finish('ok')
