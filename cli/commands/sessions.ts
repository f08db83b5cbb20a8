import { askForAction, type Endpoint, findServer, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { hasSwitch, optionalFlag, optionalGrace } from '../options.ts'
import { noteProblems } from '../problems.ts'
import { sessionColumns } from '../status-text.ts'
import { asRow, asRows, printable, type Row, table } from '../table.ts'

/** `sallyport sessions list` */
export const sessionsList: Run = async (args, io) => {
  const runtime = optionalFlag(args, 'runtime')
  const all = await readSessions(findServer(args, io), io)
  const sessions = all.filter(session => runtime === undefined || session.runtime === runtime)
  if (hasSwitch(args, 'json')) return print(io, sessions)
  const lines = table(sessions, sessionColumns(Date.now()))
  io.out(lines.length === 0 ? 'no sessions\n' : `${lines.join('\n')}\n`)
  return EXIT.ok
}

/** `sallyport sessions show` */
export const sessionsShow: Run = async (args, io) => {
  const session = findSession(await readSessions(findServer(args, io), io), optionalFlag(args, 'session'))
  if (hasSwitch(args, 'json')) return print(io, session)
  const width = Math.max(...Object.keys(session).map(name => name.length))
  io.out(
    Object.entries(session)
      .map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}\n`)
      .join(''),
  )
  return EXIT.ok
}

/** `sallyport sessions drain` */
export const sessionsDrain: Run = async (args, io) => {
  const graceMs = optionalGrace(args)
  return await change(args, io, { path: '/sessions/drain', did: 'asked to move' }, { graceMs })
}

/** `sallyport sessions close` */
export const sessionsClose: Run = async (args, io) =>
  await change(args, io, { path: '/sessions/close', did: 'closed' }, {})

interface Change {
  readonly path: string
  readonly did: string
}

async function change(args: Arguments, io: Io, { path, did }: Change, more: object): Promise<number> {
  const server = findServer(args, io)
  const body = { ...(await choice(args, server, io)), reason: optionalFlag(args, 'reason'), ...more }
  const answer = await askForAction(server, path, body)
  noteProblems(io, answer)
  const done = asRows(asRow(answer).replicas).flatMap(({ replica, sessions }) =>
    (Array.isArray(sessions) ? sessions : []).map(session => ({ replica, session })),
  )
  if (done.length === 0) throw new Failure(EXIT.runtime, 'there is no such session')
  if (hasSwitch(args, 'json')) return print(io, answer)
  for (const { replica, session } of done) {
    io.out(`session ${printable(session)} on replica ${printable(replica)}: ${did}\n`)
  }
  return EXIT.ok
}

/** `--session` may be the beginning of an id. */
async function choice(args: Arguments, server: Endpoint, io: Io): Promise<object> {
  const [session, runtime] = [optionalFlag(args, 'session'), optionalFlag(args, 'runtime')]
  if ((session === undefined) === (runtime === undefined)) throw usageError('give --session ID or --runtime NAME')
  return runtime === undefined ? { session: findSession(await readSessions(server, io), session).id } : { runtime }
}

function findSession(sessions: readonly Row[], start: string | undefined): Row {
  if (start === undefined) throw usageError('--session is missing')
  const [found, ...others] = sessions.filter(({ id }) => String(id).startsWith(start))
  if (found === undefined) throw new Failure(EXIT.runtime, `there is no session ${start}`)
  if (others.length > 0) throw usageError(`several sessions begin with ${start}`)
  return found
}

async function readSessions(server: Endpoint, io: Io): Promise<readonly Row[]> {
  const answer = asRow(await view(server, '/sessions'))
  noteProblems(io, answer)
  return asRows(answer.sessions)
}

function print(io: Io, value: unknown): number {
  io.out(`${JSON.stringify(value, undefined, 2)}\n`)
  return EXIT.ok
}
