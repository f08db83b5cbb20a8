/** `sallyport load-test URL`: puts load on a pair that is already running, and writes the same report as `npm run bench`. */
import { describeMachine } from '../lib/environment.ts'
import { Generators } from '../lib/generator.ts'
import type { Place } from '../lib/load.ts'
import { Progress } from '../lib/progress.ts'
import { writeReport } from '../lib/report.ts'
import { asText, countWrong, type Section } from '../lib/section.ts'
import { stopWorkers } from '../lib/worker.ts'
import { Bailout, DEPLOYMENT_SCENARIOS, type Deployment, type DeploymentScenario, ROUNDS } from './scenarios.ts'
import { hasOurService, type LoadTarget, look } from './target.ts'

export { serveApp } from '../upstream/app.ts'
export { DEPLOYMENT_SCENARIOS } from './scenarios.ts'

export interface DeploymentOptions {
  readonly url: string
  /** URL of the same upstream without the tunnel. */
  readonly direct?: string | undefined
  /** Sent with each request to the target. The direct URL gets only `directHeaders`. */
  readonly headers: Readonly<Record<string, string>>
  readonly ca?: string | undefined
  readonly connections: number
  /** Undefined: closed loops with autocannon. */
  readonly rate: number | undefined
  readonly durationMs: number
  readonly bailout: number
  /** Names of scenarios. Undefined: all that are possible. */
  readonly only: readonly string[] | undefined
  readonly out: string
  /** The figures. */
  readonly print: (text: string) => void
  /** Everything else that is meant for people. */
  readonly note: (text: string) => void
  readonly signal: AbortSignal
}

/** Resolves to the exit code: 1 if answers were wrong, 130 if it was stopped. Rejects if the target does not answer. */
export async function loadTest(options: DeploymentOptions): Promise<number> {
  const { url, direct, rate, connections, durationMs, signal } = options
  const targets = targetsOf(options)
  const settings = {
    target: url,
    ...(direct === undefined ? {} : { direct }),
    load: `${connections} connections, ${rate === undefined ? 'as fast as they are answered' : `${rate} requests/s`}`,
    duration: `${durationMs / 1000} s for each scenario${direct === undefined ? '' : ' and target'}, in ${ROUNDS} rounds`,
  }
  options.note(`${lines(settings)}\n`)
  const progress = new Progress()
  const generators = new Generators('autocannon')
  const sections: Section[] = []
  const skipped: string[] = []
  const stop = () => stopWorkers()
  signal.addEventListener('abort', stop)
  try {
    const service = (await Promise.all(targets.map(target => hasOurService(target, signal)))).every(Boolean)
    const plain = service ? undefined : await lookTwice(targets, signal)
    const deployment: Deployment = { ...options, targets, generators, plain, progress: text => progress.say(text) }
    for (const scenario of chosen(options.only, service, skipped)) {
      if (signal.aborted) break
      const section = await scenario.run(deployment)
      progress.clear()
      sections.push(section)
      options.print(asText(section))
    }
  } catch (error) {
    if (!(error instanceof Bailout) && !signal.aborted) throw error
    skipped.push(signal.aborted ? 'Stopped before the end.' : `Stopped: ${(error as Error).message}.`)
  } finally {
    progress.clear()
    signal.removeEventListener('abort', stop)
    await generators.stop()
  }
  const title = `Sallyport: load test of ${url}`
  for (const line of skipped) options.note(line)
  const path = writeReport(options.out, {
    title,
    environment: { ...settings, ...describeMachine() },
    sections,
    skipped,
  })
  options.print(`\n${path}\n`)
  if (signal.aborted) return 130
  const wrong = sections.reduce((sum, section) => sum + countWrong(section), 0)
  if (wrong > 0) options.note(`\x1b[31m${wrong} answers were wrong, short or missing\x1b[0m`)
  return wrong > 0 || skipped.some(line => line.startsWith('Stopped')) ? 1 : 0
}

function targetsOf({ url, direct, headers, ca }: DeploymentOptions): LoadTarget[] {
  const place = (given: string, headers: Place['headers']) => {
    return { given, ...dialled(given, headers), ...(ca === undefined ? {} : { ca }) }
  }
  const tunnel: LoadTarget = { ...place(url, headers), key: 'tunnel', name: 'through the tunnel' }
  if (direct === undefined) return [tunnel]
  // A Host that is meant for the tunnel would mislead the upstream.
  const { host: _host, ...others } = headers
  return [tunnel, { ...place(direct, others), key: 'direct', name: 'direct' }]
}

/** Names under `.localhost` mean this machine (RFC 6761), but few resolvers know that. */
function dialled(url: string, headers: Place['headers']): Place {
  const { host, hostname } = new URL(url)
  if (!/\.localhost\.?$/.test(hostname)) return { url, headers }
  return { url: Object.assign(new URL(url), { hostname: 'localhost' }).href, headers: { host, ...headers } }
}

/** The answer to a GET. Its body is compared only if two answers in a row, and those of both targets, agree. */
async function lookTwice(
  targets: readonly LoadTarget[],
  signal: AbortSignal,
): Promise<NonNullable<Deployment['plain']>> {
  const lookOnce = () => Promise.all(targets.map(target => look(target, signal)))
  const found = [...(await lookOnce()), ...(await lookOnce())]
  const first = found[0]!
  const other = found.find(each => each.status !== first.status)
  if (other !== undefined) throw new Error(`answers differ: ${first.status} and ${other.status}`)
  if (first.status >= 400) throw new Error(`${targets[0]!.given} answers ${first.status}: nothing to measure there`)
  const body = first.body.toString('utf8')
  const isSteady = found.every(each => each.body.equals(first.body)) && Buffer.from(body).equals(first.body)
  return { status: first.status, ...(isSteady ? { body } : {}) }
}

function chosen(only: readonly string[] | undefined, service: boolean, skipped: string[]): DeploymentScenario[] {
  const wanted = DEPLOYMENT_SCENARIOS.filter(each => only === undefined || only.includes(each.name))
  const missing = wanted.filter(each => each.needsService && !service).map(each => each.name)
  if (only !== undefined && missing.length > 0)
    throw new Error(
      `--only ${missing.join(', ')}: needs the service of \`sallyport load-test --serve HOST:PORT\` as the upstream`,
    )
  if (missing.length > 0)
    skipped.push(
      `Not run: ${missing.join(', ')}. They need the service of \`sallyport load-test --serve HOST:PORT\` as the ` +
        'upstream. The current one received only small GET requests.',
    )
  return wanted.filter(each => !each.needsService || service)
}

const lines = (settings: Record<string, string>): string =>
  Object.entries(settings)
    .map(([name, value]) => `${name.padEnd(10)} ${value}`)
    .join('\n')
