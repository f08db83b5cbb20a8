import { findServer, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { noteProblems } from '../problems.ts'
import { asRow, asRows, type Columns, count, printable, shortId, size, table } from '../table.ts'

const COLUMNS: Columns = {
  runtime: row => printable(row.runtime),
  replica: row => printable(row.replica),
  sessions: row => count(row.sessions),
  instances: row => count(row.instances),
  active: row => shortId(row.active),
  epoch: row => count(row.epoch),
  streams: row => count(row.streams),
  buffered: row => size(row.bufferedBytes),
}

/** `sallyport runtimes list` */
export const runtimesList: Run = async (args, io) => {
  const answer = asRow(await view(findServer(args, io), '/runtimes'))
  noteProblems(io, answer)
  const runtimes = asRows(answer.runtimes)
  const lines = table(runtimes, COLUMNS)
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(runtimes, undefined, 2)}\n`)
  else io.out(lines.length === 0 ? 'no runtimes\n' : `${lines.join('\n')}\n`)
  return EXIT.ok
}
