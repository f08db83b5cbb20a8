import { findServer, reportMissingReplicas, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { printResult } from '../print.ts'
import { asRow, asRows, type Columns, count, printable, shortId, size, tableText } from '../table.ts'

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
  const answer = asRow(await view(findServer(args, io), '/runtimes'))
  reportMissingReplicas(io, answer)
  const runtimes = asRows(answer.runtimes)
  return printResult(args, io, runtimes, () => tableText(runtimes, COLUMNS, 'no runtimes'))
}
