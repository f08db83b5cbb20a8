/** Which versions of Node survive a hostile HTTP/2 peer. */

/** The first safe release of each line. Lines in between have none, and later lines are safe from the start. */
const SAFE_FROM: readonly (readonly [major: number, minor: number, patch: number])[] = [
  [22, 23, 3],
  [24, 21, 0],
  [26, 8, 2],
]

/**
 * Whether `node:http2` of this version survives a flood of resets. In older versions, nghttp2's memory accounting goes below zero,
 * and an assertion ends the process (`current_nghttp2_memory_ >= previous_size`).
 */
export function survivesResets(version: string = process.versions.node): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(part => Number.parseInt(part, 10))
  if (major > SAFE_FROM.at(-1)![0]) return true
  const from = SAFE_FROM.find(([line]) => line === major)
  return from !== undefined && (minor > from[1] || (minor === from[1] && patch >= from[2]))
}
