-- An operator may remove the other program: its key goes.
local is_in_queue = is_there
function is_there(queue, id, token)
  if id == FOREIGN then return look(queue) end
  return is_in_queue(queue, id, token)
end

local leave_and_free = leave
function leave(queue, id)
  if id ~= FOREIGN then return leave_and_free(queue, id) end
  call('DEL', queue)
  look(queue)
  return true
end
