import { askForAction, findServer } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { optionalFlag, optionalGrace } from '../options.ts'
import { printResult } from '../print.ts'
import { asRow, asRows, printable, type Row } from '../table.ts'

export const drain: Run = async (args, io) => {
  const graceMs = optionalGrace(args)
  const replica = optionalFlag(args, 'replica')
  const answer = await askForAction(findServer(args, io), '/drain', { graceMs, replica })
  return printResult(args, io, answer, () => asRows(asRow(answer).replicas).map(describe).join(''))
}

function describe({ replica, sessions }: Row): string {
  const moved = Array.isArray(sessions) ? sessions.length : 0
  return `replica ${printable(replica)} is draining: not ready, no new connections, ${moved} sessions asked to move\n`
}
