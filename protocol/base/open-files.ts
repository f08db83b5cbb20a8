import { readPlainSync } from './plain-file.ts'

/** How many files and sockets this process may have open, if the system says so: Linux does. */
export function mostOpenFiles(): number {
  try {
    const [, most] = /^Max open files +(\d+)/m.exec(readPlainSync('/proc/self/limits').toString('latin1')) ?? []
    return Number(most ?? Number.POSITIVE_INFINITY)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}
