import type { DeploymentOptions } from '../../load-tests/deployment/index.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { address, duration } from '../config/kinds.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { hasSwitch, optionalCount, optionalFlag, readAs, readInput, readUrl } from '../options.ts'

/** More than this needs `--yes`. */
const MAX_UNCONFIRMED = { rate: 200, durationMs: 60_000 } as const

export const runLoadTest: Run = async (args, io) => {
  const serve = optionalFlag(args, 'serve')
  if (serve !== undefined) return serveUpstream(serve, io)
  const options = readOptions(args)
  if (options.rate === undefined) requireAutocannon()
  const deployment = await import('../../load-tests/deployment/index.ts')
  checkNames(
    options.only,
    deployment.DEPLOYMENT_SCENARIOS.map(({ name }) => name),
  )
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  try {
    return await deployment.loadTest({ ...options, print: io.out, note: io.note, signal: stopping.signal })
  } catch (error) {
    throw new Failure(EXIT.runtime, (error as Error).message, { cause: error })
  } finally {
    process.off('SIGINT', stop)
    process.off('SIGTERM', stop)
  }
}

function readOptions(args: Arguments): Omit<DeploymentOptions, 'print' | 'note' | 'signal'> {
  const [target] = args.positionals
  if (target === undefined) throw usageError('a URL is missing: sallyport load-test https://demo.tunnels.example.com')
  const direct = optionalFlag(args, 'direct')
  const ca = optionalFlag(args, 'ca')
  if (ca !== undefined) readInput(ca, 'the authorities')
  const options = {
    url: readUrl(target).href,
    direct: direct === undefined ? undefined : readUrl(direct).href,
    headers: readHeaders(args.flags.get('header') ?? []),
    ca,
    connections: optionalCount(args, 'connections') ?? 10,
    rate: readRate(optionalFlag(args, 'rate') ?? '50'),
    durationMs: readDuration(optionalFlag(args, 'duration') ?? '30s'),
    bailout: readShare(optionalFlag(args, 'bailout') ?? '5%'),
    only: args.flags.get('only'),
    out: optionalFlag(args, 'out') ?? 'sallyport-load-test',
  }
  const isHeavy = (options.rate ?? Infinity) > MAX_UNCONFIRMED.rate || options.durationMs > MAX_UNCONFIRMED.durationMs
  if (isHeavy && !hasSwitch(args, 'yes'))
    throw usageError(
      `more than ${MAX_UNCONFIRMED.rate} requests/s or ${MAX_UNCONFIRMED.durationMs / 1000} s needs --yes`,
    )
  return options
}

function readHeaders(lines: readonly string[]): Record<string, string> {
  const fields = lines.map(line => {
    const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)$/.exec(line) ?? []
    if (name === undefined) throw usageError('--header: expected "NAME: VALUE"')
    return [name.toLowerCase(), value!] as const
  })
  return Object.fromEntries(fields)
}

/** Undefined for `max`. */
function readRate(text: string): number | undefined {
  if (text === 'max') return undefined
  if (!/^[1-9]\d{0,5}$/.test(text))
    throw usageError(`--rate: ${JSON.stringify(text)} is neither a whole number from 1 nor max`)
  return Number(text)
}

function readDuration(text: string): number {
  const ms = readAs(duration, 'duration', text)
  if (ms < 1000) throw usageError('--duration: at least 1s')
  return ms
}

function readShare(text: string): number {
  const [, digits] = /^(\d{1,3})%?$/.exec(text) ?? []
  const share = Number(digits) / 100
  if (!(share > 0 && share <= 1)) throw usageError('--bailout: expected a percentage from 1% to 100%')
  return share
}

function checkNames(only: readonly string[] | undefined, known: readonly string[]): void {
  const unknown = only?.find(name => !known.includes(name))
  if (unknown !== undefined) throw usageError(`--only ${unknown}: there are ${known.join(', ')}`)
}

/** autocannon is an optional dependency, and only closed loops use it. */
function requireAutocannon(): void {
  try {
    import.meta.resolve('autocannon')
  } catch {
    throw new Failure(
      EXIT.runtime,
      '--rate max needs autocannon, an optional dependency that is not installed here: npm install autocannon',
    )
  }
}

/** The upstream that all scenarios need, until a signal. */
async function serveUpstream(text: string, io: Io): Promise<number> {
  const { host, port } = readAs(address, 'serve', text)
  const { serveApp } = await import('../../load-tests/deployment/index.ts')
  const server = await serveApp(host, port).catch(error => {
    throw new Failure(EXIT.runtime, `cannot listen on ${text}: ${error.message}`, { cause: error })
  })
  const bound = server.address() as { port: number }
  io.note(`the upstream for load tests is listening on http://${host}:${bound.port}; Ctrl-C ends it`)
  await new Promise(resolve => {
    process.once('SIGINT', resolve)
    process.once('SIGTERM', resolve)
  })
  server.closeAllConnections()
  server.close()
  return EXIT.ok
}
