// Which models of GET /models answer: those that embed stand behind them, and only "owned_by" tells them apart.
export const answering = (models) => models.filter((model) => model.owned_by !== "moorage-embeddings");
