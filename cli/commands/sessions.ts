import { askForAction, type Endpoint, findServer, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { beginsId, optionalFlag, optionalGrace } from '../options.ts'
import { printResult } from '../print.ts'
import { reportMissingReplicas } from '../problems.ts'
import { sessionColumns } from '../status-text.ts'
import { asRow, asRows, facts, printable, type Row, tableText } from '../table.ts'

export const sessionsList: Run = async (args, io) => {
  const runtime = optionalFlag(args, 'runtime')
  const all = await readSessions(findServer(args, io), io)
  const sessions = all.filter(session => runtime === undefined || session.runtime === runtime)
  return printResult(args, io, sessions, () => tableText(sessions, sessionColumns(Date.now()), 'no sessions'))
}

export const sessionsShow: Run = async (args, io) => {
  const session = findSession(await readSessions(findServer(args, io), io), optionalFlag(args, 'session'))
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
  reportMissingReplicas(io, answer)
  const done = asRows(asRow(answer).replicas).flatMap(({ replica, sessions }) =>
    (Array.isArray(sessions) ? sessions : []).map(session => ({ replica, session })),
  )
  if (done.length === 0) throw new Failure(EXIT.runtime, 'there is no such session')
  const describe = ({ replica, session }: (typeof done)[number]) =>
    `session ${printable(session)} on replica ${printable(replica)}: ${result}\n`
  return printResult(args, io, answer, () => done.map(describe).join(''))
}

/** The sessions that the flags choose. `--session` may be a prefix of an id. */
async function choice(args: Arguments, server: Endpoint, io: Io): Promise<object> {
  const [session, runtime] = [optionalFlag(args, 'session'), optionalFlag(args, 'runtime')]
  if ((session === undefined) === (runtime === undefined)) throw usageError('give --session ID or --runtime NAME')
  return runtime === undefined ? { session: findSession(await readSessions(server, io), session).id } : { runtime }
}

function findSession(sessions: readonly Row[], start: string | undefined): Row {
  if (start === undefined) throw usageError('--session is missing')
  const [found, ...others] = sessions.filter(({ id }) => beginsId(start, id))
  if (found === undefined) throw new Failure(EXIT.runtime, `there is no session ${start}`)
  if (others.length > 0) throw usageError(`several sessions begin with ${start}`)
  return found
}

async function readSessions(server: Endpoint, io: Io): Promise<readonly Row[]> {
  const answer = asRow(await view(server, '/sessions'))
  reportMissingReplicas(io, answer)
  return asRows(answer.sessions)
}
