/** Work that may be asked for again before it has ended. It is then not started a second time. */
export function oneAtATime(work: () => Promise<unknown>): () => Promise<void> {
  let isRunning = false
  return async () => {
    if (isRunning) return
    isRunning = true
    try {
      await work()
    } finally {
      isRunning = false
    }
  }
}
