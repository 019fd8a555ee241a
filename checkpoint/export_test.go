package checkpoint

// LoadModel is LoadVocab where the directory has the vocabulary of layers.
func LoadModel(dir string, layers []Layer, progress Progress) (others []string, err error) {
	return loadModel(dir, layers, layoutsOf(layers), progress)
}
