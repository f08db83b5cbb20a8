import { askForAction, type Endpoint, findById, findServer, readRows, reportMissingReplicas } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { optionalFlag, optionalGrace, requiredFlag } from '../options.ts'
import { printResult } from '../print.ts'
import { sessionColumns } from '../status-text.ts'
import { asRow, asRows, facts, printable, type Row, tableText } from '../table.ts'

export const sessionsList: Run = async (args, io) => {
  const runtime = optionalFlag(args, 'runtime')
  const all = await readSessions(findServer(args, io), io)
  const sessions = all.filter(session => runtime === undefined || session.runtime === runtime)
  return printResult(args, io, sessions, () => tableText(sessions, sessionColumns(Date.now()), 'no sessions'))
}

export const sessionsShow: Run = async (args, io) => {
  const start = requiredFlag(args, 'session')
  const session = findById(await readSessions(findServer(args, io), io), start, 'session')
  return printResult(args, io, session, () =>
    facts(Object.entries(session).map(([name, value]) => [name, printable(value)])),
  )
}

export const sessionsDrain: Run = async (args, io) => {
  const graceMs = optionalGrace(args)
  return await change(args, io, '/sessions/drain', 'asked to move', { graceMs })
}

export const sessionsClose: Run = async (args, io) => await change(args, io, '/sessions/close', 'closed')

async function change(args: Arguments, io: Io, path: string, result: string, more?: object): Promise<number> {
  const server = findServer(args, io)
  const body = { ...(await choice(args, server, io)), reason: optionalFlag(args, 'reason'), ...more }
  const answer = await askForAction(server, path, body)
  const code = reportMissingReplicas(io, answer)
  const done = asRows(asRow(answer).replicas).flatMap(({ replica, sessions }) =>
    (Array.isArray(sessions) ? sessions : []).map(session => ({ replica, session })),
  )
  if (done.length === 0) throw new Failure(EXIT.runtime, 'there is no such session')
  const describe = ({ replica, session }: (typeof done)[number]) =>
    `session ${printable(session)} on replica ${printable(replica)}: ${result}\n`
  return printResult(args, io, answer, () => done.map(describe).join(''), code)
}

/** The sessions that the flags choose. `--session` may be a prefix of an id. */
async function choice(args: Arguments, server: Endpoint, io: Io): Promise<object> {
  const [session, runtime] = [optionalFlag(args, 'session'), optionalFlag(args, 'runtime')]
  if ((session === undefined) === (runtime === undefined)) throw usageError('give --session ID or --runtime NAME')
  return session === undefined
    ? { runtime }
    : { session: findById(await readSessions(server, io), session, 'session').id }
}

function readSessions(server: Endpoint, io: Io): Promise<readonly Row[]> {
  return readRows(server, io, '/sessions', 'sessions')
}
