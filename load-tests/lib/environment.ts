/** The machine and the programs of a run. */
import { execFileSync } from 'node:child_process'
import { cpus, loadavg, release, totalmem } from 'node:os'
import { hasBatch } from './batch.ts'

export function describeMachine(): Record<string, string> {
  return {
    machine: `${cpus().length} x ${cpus()[0]?.model.trim() ?? 'unknown'}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    kernel: `${process.platform} ${release()}`,
    'load before': loadavg()[0]!.toFixed(2),
    node: `${process.version}, OpenSSL ${process.versions.openssl}`,
    'generators, upstream': hasBatch ? 'scheduled as batch work' : 'scheduled normally (chrt is not installed)',
    date: new Date().toISOString(),
  }
}

export const commit = (): string => {
  const hash = firstLine('git', 'rev-parse', '--short', 'HEAD')
  return firstLine('git', 'status', '--porcelain', '--untracked-files=no') === '' ? hash : `${hash}, with changes`
}

/** Versions of the other programs of a run, if they are installed. */
export function programVersions(): string {
  const settings = [
    ['nginx', '-v'],
    ['wrk', '-v'],
    ['go', 'version'],
    ['frps', '--version'],
    ['chisel', '--version'],
    ['rathole', '--version'],
    ['ssh', '-V'],
  ] as const
  return settings
    .map(([program, flag]) => [program, /(?<![\d:.])\d+\.\d+[\w.]*(?!\d*Z)/.exec(output(program, flag))?.[0]] as const)
    .filter(([, version]) => version !== undefined)
    .map(([program, version]) => `${program} ${version}`)
    .join(', ')
}

const firstLine = (command: string, ...args: string[]): string => output(command, ...args).split('\n')[0] ?? ''

/** What the command prints, on either stream. '' if it is missing. */
function output(command: string, ...args: string[]): string {
  try {
    return execFileSync('sh', ['-c', '"$@" 2>&1 || :', 'sh', command, ...args], { encoding: 'utf8' }).trim()
  } catch {
    return ''
  }
}
