import { existsSync } from 'node:fs'
import { type Endpoint, findEndpoints, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io } from '../command.ts'
import { originsFromCommandLine } from '../config/command-line.ts'
import { COMPONENTS, type ComponentName } from '../config/components.ts'
import { readValues } from '../config/load.ts'
import { Archive } from '../diag/archive.ts'
import { MAX_PROFILE_S } from '../diag/cpu-profile.ts'
import { diagnosisOf } from '../diag/diagnosis.ts'
import { logTail } from '../diag/log-tail.ts'
import { secretsOf } from '../diag/secrets.ts'
import { zip } from '../diag/zip.ts'
import { configurationError, EXIT, Failure, usageError } from '../failure.ts'
import { hasSwitch, optionalCount, optionalFlag, requiredFlag } from '../options.ts'
import { writeOutput } from '../output-files.ts'
import { plainLines } from '../plain-text.ts'
import { asRow } from '../table.ts'
import { withTarget } from './client.ts'

/** A component answers when its checks are done. */
const DEADLINE_MS = 60_000
const MAX_COMPONENTS = 16
const MAX_ANSWER_BYTES = 64 * 1024 * 1024

export async function diag(args: Arguments, io: Io): Promise<number> {
  const profileS = optionalCount(args, 'profile') ?? 0
  if (profileS > MAX_PROFILE_S) throw usageError(`--profile ${profileS}: at most ${MAX_PROFILE_S} seconds`)
  const out = newFile(args)
  const archive = new Archive()
  const running = findRunning(args, io)
  const endpoints = running.slice(0, MAX_COMPONENTS)
  if (running.length > MAX_COMPONENTS)
    io.note(
      `sallyport: only ${MAX_COMPONENTS} of ${running.length} components here are asked; --admin URL asks another one`,
    )
  const results = await Promise.allSettled(
    endpoints.map(endpoint =>
      view(endpoint, `/diag?profile=${profileS}`, { deadlineMs: DEADLINE_MS, maxBytes: MAX_ANSWER_BYTES }),
    ),
  )
  for (const [at, one] of results.entries()) {
    if (one.status === 'fulfilled') archive.add(asRow(one.value))
    else {
      const { message } = one.reason as Error
      archive.add({ component: endpoints[at]!.component, problem: message })
      io.note(`sallyport: ${message}`)
    }
  }
  await write(archive, out, args, io)
  return results.some(({ status }) => status === 'rejected') ? EXIT.runtime : EXIT.ok
}

function findRunning(args: Arguments, io: Io): Endpoint[] {
  try {
    return findEndpoints(args, io)
  } catch (error) {
    if (!(error instanceof Failure) || error.exitCode !== EXIT.runtime) throw error
    const hint = 'for one that is not running, use `sallyport diag client --out F.zip` with its flags'
    throw new Failure(EXIT.runtime, `${error.message}; ${hint}`)
  }
}

export async function diagOf(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const out = newFile(args)
  const given = component === 'client' ? withTarget(args) : args
  const settings = COMPONENTS[component]
  const archive = new Archive()
  let isCleaned = false
  try {
    const origins = await originsFromCommandLine(component, given, io)
    archive.secrets = await secretsOf(settings, origins, io.environment)
    isCleaned = true
    archive.add(asRow(await diagnosisOf(component, readValues(settings, origins), io.environment)))
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    // The message may quote a secret that was given as a value.
    archive.add({ component, problem: error.message.replaceAll(/"(?:[^"\\]|\\.)*"/g, '"***"') })
    io.note(`sallyport: ${plainLines(error.message)}`)
  }
  const log = optionalFlag(args, 'log.file')
  if (log !== undefined && isCleaned) archive.addLog(await logTail(log))
  else if (log !== undefined)
    io.note(
      'sallyport: the log is left out, because the secrets that it may contain are only known from a valid configuration',
    )
  await write(archive, out, args, io)
  return EXIT.ok
}

/** Refuses an existing file before any component is asked. */
function newFile(args: Arguments): string {
  const out = requiredFlag(args, 'out')
  if (hasSwitch(args, 'force') || !existsSync(out)) return out
  throw configurationError(`${out} already exists (--force overwrites it)`)
}

async function write(archive: Archive, path: string, args: Arguments, io: Io): Promise<void> {
  const text = zip(archive.files, new Date())
  await writeOutput([{ path, text, secret: true }], args, io)
}
