import type { DestinationStream } from 'pino'
import { logGuard } from '../../protocol/base/guard.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import { plainText } from '../plain-text.ts'
import { openTerminal } from '../terminal/open.ts'
import type { Terminal } from '../terminal/terminal.ts'
import { BufferedStderr } from './buffered-stderr.ts'
import { RecentLines } from './recent-lines.ts'

interface LogOptions {
  component: string
  level: 'debug' | 'info' | 'warn' | 'error'
  /** Whether the level was given. If not, the terminal itself shows what matters to a person. */
  levelGiven: boolean
  format: 'auto' | 'json' | 'text'
  environment: Readonly<Record<string, string | undefined>>
}

interface Log {
  readonly logger: Logger
  /** Set if the log goes to a terminal. */
  readonly terminal: Terminal | undefined
  readonly recent: RecentLines
}

/** Opens the log of a component: JSON lines or text on stderr, or the display on a terminal. */
export async function openLog(options: LogOptions): Promise<Log> {
  const { pino } = await import('pino')
  const stderr = bufferedStderr(lines => log.warn({ lines }, 'lines were dropped here: nothing was reading the log'))
  const terminal = openTerminal({ ...options, write: text => stderr.write(text) })
  const isText = options.format === 'text' || (options.format === 'auto' && process.stderr.isTTY === true)
  const recent = new RecentLines()
  const shown: DestinationStream =
    terminal !== undefined
      ? { write: line => terminal.log(JSON.parse(line)) }
      : isText
        ? { write: line => stderr.write(toText(line)) }
        : stderr
  const destination: DestinationStream = {
    write(line) {
      recent.add(line)
      shown.write(line)
    },
  }
  const base = { component: options.component }
  const formatters = { level: (level: string) => ({ level }) }
  const level = terminal === undefined || options.levelGiven ? options.level : 'warn'
  const settings = { level, base, formatters, timestamp: pino.stdTimeFunctions.isoTime }
  const serializers = { err: describeError }
  const log = pino({ ...settings, serializers, redact: ['token', 'authorization'] }, destination)
  const logger: Logger = {
    debug: (fields, message) => log.debug(fields, message),
    info: (fields, message) => log.info(fields, message),
    warn: (fields, message) => log.warn(fields, message),
    error: (fields, message) => log.error(fields, message),
  }
  return { logger, terminal, recent }
}

function bufferedStderr(onDropped: (lines: number) => void): BufferedStderr {
  const stderr = new BufferedStderr(onDropped)
  const guard = logGuard(noLogger, '')
  const flush = guard(() => stderr.flushSync())
  process.on('exit', flush)
  return stderr
}

/** An error as log lines show it: what failed and why, without a stack trace. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { message, cause } = error
  const { code } = error as NodeJS.ErrnoException
  return {
    message,
    ...(code === undefined ? {} : { code }),
    ...(cause instanceof Error && cause.message !== message ? { cause: cause.message } : {}),
  }
}

/** `03:16:00 info  listening name=public address=127.0.0.1:8080` */
function toText(line: string): string {
  const { time, level, msg, component: _, ...fields } = JSON.parse(line) as Record<string, unknown>
  const rest = Object.entries(fields).map(([name, value]) => ` ${name}=${fieldText(value)}`)
  return `${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${plainText(String(msg))}${rest.join('')}\n`
}

function fieldText(value: unknown): string {
  const text = plainText(typeof value === 'string' ? value : String(JSON.stringify(value)))
  return text === '' || /[\s"=]/.test(text) ? JSON.stringify(text) : text
}
