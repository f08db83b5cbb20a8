import { askForAction, findServer } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch, optionalFlag, optionalGrace } from '../options.ts'
import { asRow, asRows, printable } from '../table.ts'

/** `sallyport drain` */
export const drain: Run = async (args, io) => {
  const graceMs = optionalGrace(args)
  const replica = optionalFlag(args, 'replica')
  const answer = await askForAction(findServer(args, io), '/drain', { graceMs, replica })
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(answer, undefined, 2)}\n`)
  else {
    for (const { replica, sessions } of asRows(asRow(answer).replicas)) {
      const moved = Array.isArray(sessions) ? sessions.length : 0
      io.out(`replica ${printable(replica)} drains: not ready, no new connections, ${moved} sessions asked to move\n`)
    }
  }
  return EXIT.ok
}
