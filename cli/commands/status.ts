import { findRuntimeFiles, type RuntimeFile } from '../../admin/runtime-file.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { configurationError, EXIT, Failure, usageError } from '../failure.ts'
import { hasSwitch, optionalFlag, readInput } from '../options.ts'
import { describeStatus } from '../status-text.ts'

const DEADLINE_MS = 5000

interface Endpoint {
  readonly url: string
  readonly token: string | undefined
}

/** `sallyport status` */
export const status: Run = async (args, io) => {
  const answers: unknown[] = []
  for (const endpoint of findEndpoints(args, io)) answers.push(await ask(endpoint))
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(answers.length === 1 ? answers[0] : answers, undefined, 2)}\n`)
  else io.out(answers.map(answer => describeStatus(answer)).join('\n'))
  return EXIT.ok
}

function findEndpoints(args: Arguments, io: Io): Endpoint[] {
  const files = findRuntimeFiles(io.environment)
  const admin = optionalFlag(args, 'admin')
  const tokenFile = optionalFlag(args, 'admin.token.file')
  const given = tokenFile === undefined ? undefined : readInput(tokenFile, 'the admin token').trim()
  if (admin !== undefined) {
    const url = parseUrl(admin)
    const file = files.find(candidate => candidate.url === url)
    return [{ url, token: given ?? (file && tokenOf(file)) }]
  }
  if (files.length === 0) {
    throw new Failure(EXIT.runtime, 'no server, client or router of this user runs here; --admin URL asks another one')
  }
  return files.map(file => ({ url: file.url, token: given ?? tokenOf(file) }))
}

function parseUrl(text: string): string {
  const url = text.includes('://') ? text : `http://${text}`
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw usageError(`--admin ${text}: expected a URL such as http://127.0.0.1:9090`)
  }
  return new URL(url).origin
}

function tokenOf(file: RuntimeFile): string | undefined {
  return file.tokenFile === undefined ? file.token : readInput(file.tokenFile, 'the admin token').trim()
}

async function ask({ url, token }: Endpoint): Promise<unknown> {
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` }
  let response: Response
  try {
    response = await fetch(`${url}/status`, { headers, redirect: 'error', signal: AbortSignal.timeout(DEADLINE_MS) })
  } catch (error) {
    const cause = (error as Error).cause as NodeJS.ErrnoException | undefined
    throw new Failure(EXIT.runtime, `${url} does not answer (${cause?.code ?? (error as Error).message})`)
  }
  if (response.status === 401 || response.status === 403) {
    throw configurationError(`${url} wants its admin token: give --admin.token.file`)
  }
  if (!response.ok) throw new Failure(EXIT.runtime, `${url} answered ${response.status}`)
  return await response.json()
}
