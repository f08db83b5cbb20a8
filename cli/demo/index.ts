/**
 * The demo: a tunnel server, a request-routing service, a tunnel client, an ingress and two stand-ins. Each is a separate process,
 * connected over TLS and WSS on loopback. One of each kind of traffic is sent through them.
 */

import { extname } from 'node:path'
import { parseArgs } from 'node:util'
import { findRuntimeFiles } from '../../admin/runtime-file.ts'
import { messageOf } from '../../protocol/base/errors.ts'
import { endpointOf, issueCode } from '../admin-client.ts'
import { usageError } from '../failure.ts'
import { gitHubSignature } from './checks.ts'
import { authority, type EntryPoint } from './dial.ts'
import { type DemoFiles, makeFiles, UI_ORIGIN, WEBHOOK_PATH } from './files.ts'
import { runChecks } from './run-checks.ts'
import { Demo } from './topology.ts'

const CHECK_TOTAL_MS = 120_000
/** How long a client that somebody stopped remains offline, to show what happens to a webhook. */
const AWAY_MS = 30_000
const INTERRUPTED = 130
/** All that would end the process by default. The demo's folder goes with it. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'] as const
/** How the reader runs the command: from a checkout, or as installed. */
const COMMAND = extname(import.meta.filename) === '.ts' ? 'npm run --silent sallyport --' : 'sallyport'

/** Runs `sallyport demo`. With `--check` it ends after the checks. Resolves to the exit code. */
export async function demo(args: string[]): Promise<number> {
  const isCheckOnly = parse(args)
  const stopped = new AbortController()
  const stop = () => stopped.abort()
  for (const signal of SIGNALS) process.on(signal, stop)
  console.log(
    'Making a CA, certificates, keys and tokens in a temporary folder, and starting each part as a process ...',
  )
  const files = await makeFiles()
  const running = new Demo(files)
  try {
    const work = () => run(running, isCheckOnly, stopped.signal)
    return await unlessStopped(work, stopped.signal, isCheckOnly ? INTERRUPTED : 0)
  } catch (error) {
    console.error(`The demo failed: ${messageOf(error)}`)
    return 1
  } finally {
    await running.stop()
    await files.remove()
    for (const signal of SIGNALS) process.off(signal, stop)
  }
}

async function run(running: Demo, isCheckOnly: boolean, stopped: AbortSignal): Promise<number> {
  const entries = await running.start()
  entries.push(await running.startEmbedded())
  console.log()
  const all = AbortSignal.any([stopped, AbortSignal.timeout(CHECK_TOTAL_MS)])
  const failed = await runChecks(entries, running.files.secret, all)
  if (isCheckOnly) {
    console.log(failed === 0 ? '\nAll checks passed.' : `\n${failed} checks failed.`)
    return failed === 0 ? 0 : 1
  }
  printAddresses(running)
  printCommands(entries, running.files)
  printInbox(entries, running)
  await printViews(running)
  console.log('\nCtrl-C stops everything.')
  await new Promise(resolve => stopped.addEventListener('abort', resolve, { once: true }))
  return 0
}

function parse(args: string[]): boolean {
  try {
    return parseArgs({ args, options: { check: { type: 'boolean' } } }).values.check === true
  } catch {
    throw usageError(`"sallyport demo" knows only --check: ${args.join(' ')}`)
  }
}

/** Ctrl-C ends the demo at any point. */
async function unlessStopped(work: () => Promise<number>, stopped: AbortSignal, code: number): Promise<number> {
  if (stopped.aborted) return code
  return await new Promise((resolve, reject) => {
    stopped.addEventListener('abort', () => resolve(code), { once: true })
    work().then(resolve, reject)
  })
}

function printAddresses(running: Demo): void {
  const rows = running.listening.map(row => [row.part, row.what, row.address])
  const width = (column: number) => Math.max(...rows.map(row => row[column]?.length ?? 0))
  const [first, second] = [width(0), width(1)]
  console.log('\nIt listens here:\n')
  for (const [part = '', what = '', address] of rows) {
    console.log(`  ${part.padEnd(first)}  ${what.padEnd(second)}  ${address}`)
  }
}

function printCommands(entries: readonly EntryPoint[], files: DemoFiles): void {
  const body = '{"ref":"refs/heads/main"}'
  const signature = gitHubSignature(files.secret, body)
  console.log('\nTry it (names under .localhost are known to curl and Chromium, but to few other programs):')
  for (const entry of entries) {
    const at = `https://${authority(entry)}`
    const curl = `curl --cacert ${files.ca} --resolve ${authority(entry)}:127.0.0.1`
    console.log(`\n  # ${entry.name}
  ${curl} ${at}/app-proxy/api/whoami
  ${curl} ${at}/app-proxy/api/graphql -H 'content-type: application/json' -d '{"query":"{ runtime }","variables":{"name":"demo"}}'
  ${curl} -N ${at}/app-proxy/api/events
  ${curl} ${at}${WEBHOOK_PATH} -H 'content-type: application/json' -H 'X-Hub-Signature-256: ${signature}' --data-binary '${body}'
  ${curl} -i ${at}/nobody-there -H 'Origin: ${UI_ORIGIN}'`)
  }
}

/** Shows how to see what happens to a webhook whose client is offline. */
function printInbox(entries: readonly EntryPoint[], running: Demo): void {
  const entry = entries.find(({ keeper }) => keeper !== undefined)
  const pid = running.keepEmbedded(AWAY_MS)
  if (entry !== undefined) {
    const { webhookSecret, ca } = running.files
    const url = `https://${authority(entry)}${WEBHOOK_PATH}`
    console.log(`\n  # A webhook while its client is away (${entry.name}): it is kept, and delivered when the client is back after ${AWAY_MS / 1000} s
  kill ${pid}
  ${COMMAND} webhook send --secret-file ${webhookSecret} --ca ${ca} ${url}
  ${COMMAND} inbox list`)
  }
}

/** Shows where to see what the parts do. */
async function printViews(running: Demo): Promise<void> {
  const admins = running.listening
    .filter(({ what }) => what.endsWith('(admin)'))
    .map(({ address }) => `http://${address}`)
  const files = findRuntimeFiles(process.env).filter(({ url }) => admins.includes(url))
  console.log(
    '\n  # A page for each part: what runs, what failed and why, requests, 15 minutes of traffic. Each link opens it once; the command prints more',
  )
  for (const file of files) {
    console.log(`  ${file.component.padEnd(6)}  ${file.url}/#${await issueCode(endpointOf(file))}`)
  }
  console.log(`  ${COMMAND} ui

  # The last requests, part by part: at the server and at the client
  ${COMMAND} traces --last 1

  # The requests that came through the tunnel, secrets redacted; one of them once more
  ${COMMAND} inspect tail --no-follow
  ${COMMAND} inspect replay ID --yes

  # Metrics of each part, for Prometheus`)
  for (const url of admins) console.log(`  curl ${url}/metrics`)
}
