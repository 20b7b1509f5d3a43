-- Remove contenders. For each: queue, id, its token or "" for any -> how many
local count = 0
for at = FIRST, #ARGV, 3 do
  local queue, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if token == '' or is_there(queue, id, token) then
    if leave(queue, id) then count = count + 1 end
  end
end
return finish('ok', count)
