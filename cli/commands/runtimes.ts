import { findServer, readRows } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { printResult } from '../print.ts'
import { type Columns, count, printable, shortId, size, tableText } from '../table.ts'

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

export const runtimesList: Run = async (args, io) => {
  const runtimes = await readRows(findServer(args, io), io, '/runtimes', 'runtimes')
  return printResult(args, io, runtimes, () => tableText(runtimes, COLUMNS, 'no runtimes'))
}
